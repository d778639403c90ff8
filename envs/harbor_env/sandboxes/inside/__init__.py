"""The part of the local sandbox that runs as its own small program: standard library only, no imports from outside.

It is started as `python -I -S`, so that it costs a few milliseconds and sees nothing of the caller's environment.
"""
