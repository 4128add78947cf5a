// A thread of its own: the SHA-256 (FIPS 180-4) of the file that it is sent, read in blocks. The browser's digest would
// need the whole file in memory, and is not there for pages that come by plain http.

const BLOCK = 4 * 2 ** 20;
const SENT_MS = 200;

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes, and of the square roots of eight.
const primes = [];
for (let number = 2; primes.length < 64; number++) if (primes.every((prime) => number % prime)) primes.push(number);
const fraction = (root) => ((root - Math.floor(root)) * 2 ** 32) | 0;
const K = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
const state = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
const w = new Int32Array(64);

// Bytes of whole blocks of 64.
function update(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let [h0, h1, h2, h3, h4, h5, h6, h7] = state;
  for (let at = 0; at < bytes.byteLength; at += 64) {
    for (let i = 0; i < 16; i++) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15];
      const y = w[i - 2];
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      w[i] = (w[i - 16] + s0 + w[i - 7] + s1) | 0;
    }
    let a = h0, b = h1, c = h2, d = h3, e = h4, f = h5, g = h6, h = h7;
    for (let i = 0; i < 64; i++) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + w[i]) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g; g = f; f = e; e = (d + t1) | 0;
      d = c; c = b; b = a; a = (t1 + t2) | 0;
    }
    h0 = (h0 + a) | 0; h1 = (h1 + b) | 0; h2 = (h2 + c) | 0; h3 = (h3 + d) | 0;
    h4 = (h4 + e) | 0; h5 = (h5 + f) | 0; h6 = (h6 + g) | 0; h7 = (h7 + h) | 0;
  }
  state.set([h0, h1, h2, h3, h4, h5, h6, h7]);
}

async function digest(file) {
  let told = 0;
  let rest = new Uint8Array();
  for (let at = 0; at < file.size; at += BLOCK) {
    const bytes = new Uint8Array(await file.slice(at, at + BLOCK).arrayBuffer());
    const whole = bytes.length - (bytes.length % 64);
    update(bytes.subarray(0, whole));
    rest = bytes.subarray(whole); // of the last block alone: the others are multiples of 64
    if (Date.now() - told > SENT_MS) {
      told = Date.now();
      postMessage({ read: at + bytes.length });
    }
  }
  const end = new Uint8Array(rest.length < 56 ? 64 : 128);
  end.set(rest);
  end[rest.length] = 0x80;
  new DataView(end.buffer).setBigUint64(end.length - 8, BigInt(file.size) * 8n);
  update(end);
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

onmessage = ({ data }) => {
  digest(data).then((sha256) => postMessage({ sha256 }), (error) => postMessage({ failed: error.message }));
};
