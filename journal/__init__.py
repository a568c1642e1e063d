"""An append-only log addressed by LSN. It knows no message: what a record means is the store's affair."""
