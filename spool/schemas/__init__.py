"""What goes over HTTP, as the server writes it and the client reads it: the shapes of requests and answers.

    jobs       jobs, workers, models, health, and the types that all of them share
    batches    many jobs handed in at once
    costs      reports
    webhooks   who is told of events, and what they were sent
    options    how to transcribe, as a schema
    examples, batch_examples, cost_examples, webhook_examples    one of each, for the OpenAPI page

Answers ignore what they do not know, so a client may be older than its server. Knows neither routes nor SQL.
"""
