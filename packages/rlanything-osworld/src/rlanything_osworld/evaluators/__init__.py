"""The program that sets tasks up and scores them, with desktop_env's own controllers.

It is run by the Python of `make osworld`, in a box; nothing here is imported by the library.
"""
