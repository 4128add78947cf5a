// Runs in the audio thread: the microphone's samples as 16-bit PCM, a tenth of a second at a time, and how loud they are.

const TENTH = 0.1;

class Microphone extends AudioWorkletProcessor {
  constructor() {
    super();
    this.samples = new Int16Array(Math.round(sampleRate * TENTH));
    this.count = 0;
    this.peak = 0;
  }

  process([[channel]]) {
    for (const value of channel ?? []) {
      const bounded = Math.max(-1, Math.min(1, value));
      this.peak = Math.max(this.peak, Math.abs(bounded));
      this.samples[this.count++] = Math.round(bounded * 32767);
      if (this.count === this.samples.length) {
        const pcm = this.samples.slice().buffer;
        this.port.postMessage({ pcm, level: this.peak }, [pcm]);
        this.count = 0;
        this.peak = 0;
      }
    }
    return true;
  }
}

registerProcessor("microphone", Microphone);
