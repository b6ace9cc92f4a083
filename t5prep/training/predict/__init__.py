"""Rows → answers: on the devices, to files, over HTTP."""
