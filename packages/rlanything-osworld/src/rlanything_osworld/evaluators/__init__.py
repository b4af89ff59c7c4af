"""The program that sets tasks up and scores them, with desktop_env's own controllers.

The Python of `make osworld` runs it in a box; the library imports nothing from here.
"""
