"""Pictures: a canvas for environments, films, and charts of runs."""
