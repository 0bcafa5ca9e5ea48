"""Where checkpoints, epoch logs and the journal are kept. One contract (`base.Store`), checked by one suite."""
