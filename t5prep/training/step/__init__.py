"""One training step: loss, gradients, optimizer, schedules, memory."""
