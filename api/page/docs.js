// Swagger UI over this server's own description. A key that this tab already has is filled in.

import { savedKey } from "./http.js";

const ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  onComplete: () => {
    const key = savedKey();
    if (key) ui.preauthorizeApiKey("HTTPBearer", key);
  },
});
