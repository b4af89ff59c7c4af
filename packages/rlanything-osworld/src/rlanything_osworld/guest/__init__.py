"""The programs inside a desktop, on the system's own Python: none imports the library.

`start` is its first process, `server` answers the host. They import one another by plain names,
because the folder is all that a desktop shows of the project.
"""
