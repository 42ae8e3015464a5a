"""A site: trains the model that it is sent on its own people, and returns it."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tabular.task import Net, load_data, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    model, loader = Net(), load_data(partition)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, loader)
    metrics = MetricRecord({"num-examples": len(loader.dataset), "site": partition})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
