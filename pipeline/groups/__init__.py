"""The groups of settings (``data``, ``hog``, ``classifier``, ...) as dataclasses with range checks.

The comment behind a field is what ``--help`` says of it. :mod:`pipeline.config` has all of them under one name.
"""
