"""The page that shows the monitor: a terminal, and what may be loaded and done in it."""

from __future__ import annotations


def policy(address: str, nonce: str = "") -> str:
    """The Content-Security-Policy: scripts are the terminal's file and the one with `nonce`.

    Styles may be inline, since the terminal makes them as it draws; they cannot load anything from
    elsewhere.
    """
    scripts = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "font-src 'self'",
            "img-src 'self' data:",
            f"connect-src 'self' ws://{address}",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def page(address: str, nonce: str, font_size: int) -> str:
    """The page of the server at `address`, with text of so many pixels."""
    values = {"ADDRESS": address, "NONCE": nonce, "FONT_SIZE": str(font_size)}
    text = _PAGE
    for name, value in values.items():
        text = text.replace(name, value)
    return text


_PAGE = """<!DOCTYPE html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <title>operant monitor</title>
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="/static/css/xterm.css">
    <script src="/static/js/textual.js"></script>
    <style>
      @font-face {
        font-family: "Roboto Mono";
        src: url("/static/fonts/RobotoMono-VariableFont_wght.ttf");
      }
      body { background: #0c181f; }
      .textual-terminal { opacity: 0; }
      body.-first-byte .textual-terminal { opacity: 1; }
      #closed {
        display: none;
        position: absolute;
        inset: 0;
        z-index: 10;
        align-items: center;
        justify-content: center;
        background: #0c181fcc;
        color: #fffffff2;
        font: 16px "Roboto Mono", menlo, monospace;
      }
      body.-closed #closed { display: flex; }
      #closed button { margin-left: 16px; padding: 8px 16px; font: inherit; }
      #start { display: none; }
    </style>
  </head>
  <body>
    <div id="closed">
      <span>The monitor has ended, or has too many visitors.</span>
      <button type="button" id="again">Again</button>
    </div>
    <div id="start"></div>
    <div id="terminal" class="textual-terminal"
         data-session-websocket-url="ws://ADDRESS/ws" data-font-size="FONT_SIZE"></div>
    <script nonce="NONCE">
      document.querySelector("#again").addEventListener("click", () => location.reload());
    </script>
  </body>
</html>
"""
