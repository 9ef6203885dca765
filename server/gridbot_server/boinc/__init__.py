"""Stock BOINC clients as clients of this server: their protocol, keys and applications."""
