"""A session as training data: one file per format; `FORMATS` closes the package."""
