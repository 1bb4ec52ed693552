"""ResNet50 for `weft up`, with random weights: tests/gpu/serving.py serves it beside training."""

import numpy as np
import torch
import weft


class Served(weft.Model):
    inputs = [weft.Tensor("IMAGE", "UINT8", [-1, 3, 224, 224])]
    outputs = [weft.Tensor("CLASS", "INT64", [-1, 1])]

    def load(self):
        from torchvision.models import resnet50

        torch.manual_seed(0)
        torch.set_num_threads(2)
        self.network = resnet50().eval().cuda().half()
        for batch in range(1, 9):
            self.predict({"IMAGE": np.zeros((batch, 3, 224, 224), dtype=np.uint8)})

    def predict(self, inputs):
        with torch.inference_mode():
            images = torch.from_numpy(np.ascontiguousarray(inputs["IMAGE"])).cuda().half() / 255
            return {"CLASS": self.network(images).argmax(1, keepdim=True).cpu().numpy()}
