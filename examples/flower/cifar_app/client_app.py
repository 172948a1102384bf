"""The client: load what came, train, send it back."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from cifar_app.task import Net, pictures_of, train

app = ClientApp()


@app.train()
def fit(message: Message, context: Context) -> Message:
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    samples = int(context.run_config.get("samples", 1))
    inputs, labels = pictures_of(int(context.node_config["partition-id"]), samples)
    loss = train(net, inputs, labels, float(message.content["config"]["lr"]), int(context.run_config.get("epochs", 1)))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(labels)})
    reply = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=reply, reply_to=message)
