"""Credit: what valid replicas earn, who has how much, and BOINC's statistics files."""
