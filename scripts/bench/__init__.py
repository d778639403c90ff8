"""Programs for measuring the gateway on one machine: a fake engine, a load generator, peers, drift scenarios."""
