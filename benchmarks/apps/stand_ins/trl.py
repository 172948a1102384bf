"""The two classes of trl 0.8 that FlowerTune's apps use, over plain torch: the same training, without its framework."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader


class DataCollatorForCompletionOnlyLM:
    """Pads token ids; the loss counts what stands behind the response's mark, as trl's class does."""

    def __init__(self, response_template: list[int], tokenizer: Any) -> None:
        self.mark, self.tokenizer = response_template, tokenizer

    def __call__(self, rows: list[list[int]]) -> dict[str, torch.Tensor]:
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        labels = torch.full((len(rows), longest), -100)
        for place, row in enumerate(rows):
            ids[place, : len(row)] = torch.tensor(row)
            begin = next((i + 1 for i in range(len(row)) if row[i : i + len(self.mark)] == self.mark), 0)
            labels[place, begin : len(row)] = torch.tensor(row[begin:])
        return {
            "input_ids": ids,
            "attention_mask": (labels != -100) | (ids != self.tokenizer.pad_token_id),
            "labels": labels,
        }


class SFTTrainer:
    """AdamW over the rows of `train_dataset` for `max_steps`, as the arguments say."""

    def __init__(self, model: Any, args: Any, train_dataset: Any, formatting_func: Any, data_collator: Any, **own: Any):
        self.model, self.args, self.collator = model, args, data_collator
        texts, longest = formatting_func(train_dataset[:]), own["max_seq_length"]
        self.rows = [own["tokenizer"](text)["input_ids"][:longest] for text in texts]

    def train(self) -> Any:
        trained = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=self.args.learning_rate, weight_decay=self.args.weight_decay)
        loader = DataLoader(self.rows, self.args.per_device_train_batch_size, shuffle=True, collate_fn=self.collator)
        self.model.train()
        steps, loss = 0, 0.0
        while steps < self.args.max_steps:
            for batch in loader:
                optimizer.zero_grad()
                found = self.model(**batch).loss
                found.backward()
                torch.nn.utils.clip_grad_norm_(trained, self.args.max_grad_norm)
                optimizer.step()
                steps, loss = steps + 1, float(found)
                if steps == self.args.max_steps:
                    break
        return type("Result", (), {"training_loss": loss})()
