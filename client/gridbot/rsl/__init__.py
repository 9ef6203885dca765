"""Job descriptions in RSL, the language of Globus GRAM: read, written, and turned into BOTs.

Grammar and attributes are those of RSL 1 as GRAM5 reads it.
"""
