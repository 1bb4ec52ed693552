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
        request = {"resnet50": resnet50, "bert": bert, "gpt2": gpt2_graphed if graph else gpt2}[name](batch)
    if name == "gpt2":
        return request
    return graphed(request) if graph else synced(request)


def training(name, batch):
    torch.manual_seed(0)
    with torch.device("cuda"):
        return {"resnet50": train_resnet50, "bert": train_bert, "gpt2": train_gpt2}[name](batch)


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


def trained(model, loss):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    progress = Progress(model)

    def work():
        optimizer.zero_grad(set_to_none=True)
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
