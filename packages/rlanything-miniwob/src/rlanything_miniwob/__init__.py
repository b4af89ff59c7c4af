"""Web tasks of MiniWoB++ in a real Chromium."""
