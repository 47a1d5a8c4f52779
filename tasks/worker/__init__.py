"""Scale-out: worker processes that take tasks from the queue. Embedded mode never imports this."""
