"""The shapes of requests and answers over HTTP, as the server writes them and the client reads them.

    jobs, batches, costs, webhooks    the resources of the API
    fleet      workers, models, health, problems, the overview
    common     the types that they share
    examples   one example of each, for the OpenAPI page

Answers ignore unknown fields, so a client may be older than its server. Routes and SQL are for others.
"""
