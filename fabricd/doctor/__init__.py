"""GPUDirect RDMA checks of a node."""
