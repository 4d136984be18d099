"""UFM Enterprise by its REST interface."""
