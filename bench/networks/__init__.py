"""The networks of the table, once as Gluon blocks, and as twins of the same shapes for every other peer."""
