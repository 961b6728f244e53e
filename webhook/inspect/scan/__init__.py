"""`podsettle scan`: which nodes have a defect, and which pods suffer from one."""
