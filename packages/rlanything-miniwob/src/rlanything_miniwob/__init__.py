"""MiniWoB++ web tasks in a real Chromium."""
