-- One's own machines are listed without a look at all hosts.
CREATE INDEX host_owner ON host (owner);
