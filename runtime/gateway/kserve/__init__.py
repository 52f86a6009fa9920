"""KServe v2 as Triton speaks it, over gRPC and HTTP: parses requests into `Call`, formats answers; no more."""
