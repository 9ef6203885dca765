"""BOTs as BOINC applications: description, wrapper script, signatures, rotation of keys."""
