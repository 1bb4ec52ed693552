"""What the workloads compute: functions that do one request, or one step of training, and return when the GPU is done.

Weights are random and inputs constant: only time is of interest.
"""

import torch

from progress import Progress

PROMPT, TOKENS = 16, 8
GPT2_BATCH, GPT2_LENGTH = 64, 512
BERT_LENGTH = 128


def inference(name, batch, graph):
    torch.manual_seed(0)
    with torch.device("cuda"):
        request = (INFERENCE | ({"gpt2": gpt2_graphed} if graph else {}))[name](batch)
    if name == "gpt2":
        return request
    return graphed(request) if graph else synced(request)


def training(name, batch):
    torch.manual_seed(0)
    with torch.device("cuda"):
        return TRAINING[name](batch)


def synced(forward):
    def request():
        with torch.inference_mode():
            forward().cpu()

    return request


def captured(forward):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.inference_mode():
        for _ in range(3):
            forward()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.inference_mode():
        out = forward()
    return graph, out


def graphed(forward, times=1):
    graph, out = captured(forward)

    def request():
        for _ in range(times):
            graph.replay()
        out.cpu()

    # A graph does not keep the weights that it reads.
    request.forward = forward
    return request


def resnet50(batch):
    from torchvision.models import resnet50 as build

    model, image = build().eval(), torch.randn(batch, 3, 224, 224)
    return lambda: model(image)


def effnet(batch):
    from torchvision.models import efficientnet_b0 as build

    model, image = build().eval().half(), torch.randn(batch, 3, 224, 224, dtype=torch.half)
    return lambda: model(image)


def vit(batch):
    from torchvision.models import vit_b_16 as build

    model, image = build().eval().half(), torch.randn(batch, 3, 224, 224, dtype=torch.half)
    return lambda: model(image)


class DecoderLayer(torch.nn.Module):
    """The products of a layer of a decoder of seven billion parameters."""

    def __init__(self, width=4096, inner=11008):
        super().__init__()
        shapes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 2 * inner), "down": (inner, width)}
        for name, (rows, columns) in shapes.items():
            setattr(self, name, torch.nn.Linear(rows, columns, bias=False, dtype=torch.half))

    def forward(self, x):
        x = x + self.out(self.qkv(x)[:, : x.shape[1]])
        gate, up = self.up(x).chunk(2, -1)
        return x + self.down(torch.nn.functional.silu(gate) * up)


def decode(batch):
    """A step for so many sequences, without attention: it reads every weight once."""
    model, x = torch.nn.Sequential(*[DecoderLayer() for _ in range(32)]).eval(), torch.randn(batch, 4096).half()
    return lambda: model(x)


def bert(batch):
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig()).eval()
    tokens = torch.randint(0, 30000, (batch, BERT_LENGTH))
    return lambda: model(tokens).pooler_output


def gpt2(batch):
    """A prompt, and some tokens after it, one by one."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).eval()
    prompt = torch.randint(0, 50000, (batch, PROMPT))

    def request():
        with torch.inference_mode():
            past, token = None, prompt
            for _ in range(TOKENS):
                out = model(token, past_key_values=past, use_cache=True)
                past, token = out.past_key_values, out.logits[:, -1:].argmax(-1)
            token.cpu()

    return request


def gpt2_graphed(batch):
    """The same number of steps, each over the whole window, as one graph."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config()).eval()
    window = torch.randint(0, 50000, (batch, PROMPT + TOKENS))
    return graphed(lambda: model(window, use_cache=False).logits[:, -1:].argmax(-1), TOKENS)


def trained(model, loss, precision=torch.float32):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    progress = Progress(model)

    def work():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        value.item()

    def step():
        progress.step(work)

    # The first step allocates, and takes longer for it.
    work()
    progress.calibrate(work)
    step.progress = progress
    return step


def train_resnet50(batch):
    from torchvision.models import resnet50 as build

    batch = batch or 64
    model = build()
    images = torch.randn(batch, 3, 224, 224)
    labels = torch.randint(0, 1000, (batch,))
    return trained(model, lambda: torch.nn.functional.cross_entropy(model(images), labels))


def train_bert(batch):
    from transformers import BertConfig, BertForMaskedLM

    batch = batch or 32
    model = BertForMaskedLM(BertConfig())
    tokens = torch.randint(0, 30000, (batch, BERT_LENGTH))
    return trained(model, lambda: model(tokens, labels=tokens).loss)


def train_gpt2(batch):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    tokens = torch.randint(0, 50000, (batch or GPT2_BATCH, GPT2_LENGTH))
    return trained(model, lambda: model(tokens, labels=tokens).loss)


def train_vit_l(batch):
    from torchvision.models import vit_l_16 as build

    batch = batch or 16
    model = build()
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    return trained(model, lambda: torch.nn.functional.cross_entropy(model(images), labels), torch.bfloat16)


def train_bert_l(batch):
    from transformers import BertConfig, BertForMaskedLM

    shape = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    model = BertForMaskedLM(shape)
    tokens = torch.randint(0, 30000, (batch or 16, 256))
    return trained(model, lambda: model(tokens, labels=tokens).loss, torch.bfloat16)


def gemm(_batch):
    """Products of matrices that take about 170 ms each on an H200, one by one: nothing that takes time slices."""
    a, b = (torch.randn(40960, 40960, dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)

    def step():
        torch.mm(a, b, out=out)
        torch.cuda.synchronize()

    return step


INFERENCE = {"resnet50": resnet50, "effnet": effnet, "vit": vit, "bert": bert, "gpt2": gpt2, "decode": decode}
TRAINING = {
    "resnet50": train_resnet50,
    "bert": train_bert,
    "gpt2": train_gpt2,
    "vit-l": train_vit_l,
    "bert-l": train_bert_l,
    "gemm": gemm,
}
