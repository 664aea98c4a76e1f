"""The courier's web service, as a shop would find it: somebody else's, and running somewhere.

    python3 services/courier.py [PORT]

Quotes for anybody, shipments for whoever says which shop they are for (`X-Shop`). Nothing is kept
once it ends. `courier.yaml` describes it to programs.
"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PORT = 8790
MAX_BODY_BYTES = 64 * 1024
BASE_CENTS, CENTS_PER_KILOGRAM = 390, 120
DAYS = {"standard": 3, "express": 1}

shipments = {}
lock = threading.Lock()


class Refused(Exception):
    """A status and what is wrong."""


def quote(weight_grams, service):
    if not 1 <= weight_grams <= 30_000:
        raise Refused(422, f"weight_grams must be between 1 and 30000, not {weight_grams}")
    if service not in DAYS:
        raise Refused(422, f"service must be one of {', '.join(DAYS)}, not {service!r}")
    price = BASE_CENTS + CENTS_PER_KILOGRAM * -(-weight_grams // 1000)
    return {"price_cents": price * (2 if service == "express" else 1), "days": DAYS[service]}


class Courier(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(self.look)

    def do_POST(self):
        self.answer(self.book)

    def do_DELETE(self):
        self.answer(self.cancel)

    def look(self, path, query):
        if path == ["quotes"]:
            try:
                weight = int(query["weight_grams"][0])
            except (KeyError, ValueError):
                raise Refused(422, "weight_grams must be an integer") from None
            return 200, quote(weight, query.get("service", ["standard"])[0])
        return 200, self.shipment(path)

    def book(self, path, _):
        self.check_shop()
        if path != ["shipments"]:
            raise Refused(404, "there is nothing here")
        wanted = self.body()
        price = quote(wanted["weight_grams"], wanted.get("service", "standard"))
        with lock:
            name = f"SHP-{len(shipments) + 1:04}"
            shipments[name] = {"shipment": name, "order_id": wanted["order_id"], "status": "booked", **price}
            return 201, shipments[name]

    def cancel(self, path, _):
        self.check_shop()
        shipment = self.shipment(path)
        with lock:
            shipment["status"] = "cancelled"
        return 200, shipment

    def shipment(self, path):
        self.check_shop()
        if len(path) == 2 and path[0] == "shipments" and path[1] in shipments:
            return shipments[path[1]]
        raise Refused(404, "there is no such shipment")

    def check_shop(self):
        if not self.headers["X-Shop"]:
            raise Refused(401, "the header X-Shop is missing")

    def body(self):
        length = int(self.headers["Content-Length"] or 0)
        if length > MAX_BODY_BYTES:
            raise Refused(413, f"at most {MAX_BODY_BYTES} bytes")
        try:
            wanted = json.loads(self.rfile.read(length))
            return {"order_id": str(wanted["order_id"]), **wanted, "weight_grams": int(wanted["weight_grams"])}
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(422, f"order_id and weight_grams are needed: {error}") from None

    def answer(self, produce):
        url = urlsplit(self.path)
        path = [unquote(part) for part in url.path.split("/") if part]
        try:
            status, body = produce(path, parse_qs(url.query))
        except Refused as refused:
            status, body = refused.args[0], {"error": refused.args[1]}
            # What was sent with it may not have been read.
            self.close_connection = True
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else PORT), Courier)
    print(f"the courier listens on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
