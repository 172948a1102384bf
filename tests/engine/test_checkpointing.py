"""A path whose steps are computed again gives the same values and slopes."""

import torch

from leakgauge.client.fedavg import trained
from leakgauge.engine.gradients import parameters_of, trial_gradients, working_model
from leakgauge.types import Batch, Client


def test_values_and_slopes_are_the_same_with_and_without(model, victims):
    net, batch = working_model(model(), "eval"), victims(2, 4)
    for text in ("momentum=0.9,weight_decay=0.01", "optimizer=adamw,eps=1e-3"):
        local = Client.from_text(f"kind=fedavg,epochs=2,batch_size=2,{text}")
        found = []
        for low_memory in (False, True):
            inputs = batch.inputs.clone().requires_grad_()

            def gradient_of(x, y, weights, _):
                return trial_gradients(net, x, y, weights)

            after = trained(
                parameters_of(net), [Batch(inputs, batch.labels)], local, gradient_of, low_memory=low_memory
            )
            total = sum((w * w.detach().sin()).sum() for w in after.values())
            found.append((after, torch.autograd.grad(total, inputs)[0]))
        (kept, slope), (again, slope_again) = found
        for name in kept:
            torch.testing.assert_close(kept[name], again[name])
        assert slope.abs().max() > 0
        torch.testing.assert_close(slope, slope_again, rtol=1e-7, atol=1e-12)
