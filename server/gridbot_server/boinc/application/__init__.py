"""BOTs as BOINC applications: description, wrapper script, code signing keys and signatures."""
