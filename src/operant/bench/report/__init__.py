"""``operant bench report``: results as a static page, with charts drawn here."""
