"""Job descriptions of ARC, in ADL and xRSL, as BOTs of one job, and the states that ARC shows."""
