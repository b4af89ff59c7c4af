"""The programs inside a desktop, on the system's own Python: none imports the library.

`start` is its first process, `server` answers the host. They import one another by plain names,
because the desktop contains only this folder of the project.
"""
