// The worker on grpc-js with grpc-js-xds; ../README.md describes the protocol.
'use strict';

const readline = require('node:readline');
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');

// A hold that gets no answers must not pile up calls without end.
const MAX_HELD_IN_FLIGHT = 1000;
const CSDS_METHOD = '/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus';

const identity = (bytes) => bytes;
const insecure = grpc.credentials.createInsecure();
const channels = new Map();
const holds = new Map();
let csdsPort = null;

// What became of the calls of one command.
class Counts {
  constructor() {
    this.names = {};
    this.errors = {};
    this.firstError = null;
  }

  addName(message) {
    const name = message.toString('utf8');
    this.names[name] = (this.names[name] ?? 0) + 1;
  }

  addError(error) {
    const status = grpc.status[error.code] ?? String(error.code);
    this.errors[status] = (this.errors[status] ?? 0) + 1;
    this.firstError ??= error.details || status;
  }

  report() {
    return { names: this.names, errors: this.errors, first_error: this.firstError };
  }
}

// Makes one call; the promise never fails.
function makeCall(command, counts) {
  const client = channelOf(command);
  const metadata = new grpc.Metadata();
  for (const [key, value] of Object.entries(command.metadata)) {
    metadata.add(key, value);
  }
  const deadline = Date.now() + command.timeout_ms;
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      command.method, identity, identity, Buffer.from(command.body), metadata, { deadline },
      (error, message) => {
        if (error) {
          counts.addError(error);
        } else {
          counts.addName(message);
        }
        resolve();
      });
  });
}

function channelOf(command) {
  const client = channels.get(command.channel);
  if (client === undefined) {
    throw new Error(`no channel ${command.channel}`);
  }
  return client;
}

// Calls at a constant rate in the background, whether or not the answers come.
class Hold {
  constructor(command) {
    this.counts = new Counts();
    this.inFlight = new Set();
    this.started = Date.now();
    this.made = 0;
    // Timers of less than a few milliseconds are not kept: each tick makes the calls that are due.
    this.timer = setInterval(() => this.makeDueCalls(command), 5);
  }

  makeDueCalls(command) {
    const due = ((Date.now() - this.started) / 1000) * command.per_second;
    for (; this.made < due && this.inFlight.size < MAX_HELD_IN_FLIGHT; this.made += 1) {
      const call = makeCall(command, this.counts).then(() => this.inFlight.delete(call));
      this.inFlight.add(call);
    }
  }

  async stop() {
    clearInterval(this.timer);
    await Promise.all(this.inFlight);
    return this.counts.report();
  }
}

// The library tells its client status only through a server of its own.
async function startCsds() {
  const server = new grpc.Server();
  grpc.addAdminServicesToServer(server);
  return new Promise((resolve, reject) => {
    server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (error, port) => {
      if (error) {
        reject(error);
      } else {
        resolve(port);
      }
    });
  });
}

const commands = {
  hello: () => ({
    library: 'grpc-js',
    version: `${require('@grpc/grpc-js/package.json').version} `
      + `(xds ${require('@grpc/grpc-js-xds/package.json').version})`,
  }),

  open: (command) => {
    channels.set(command.channel, new grpc.Client(command.target, insecure));
    return {};
  },

  close: (command) => {
    channelOf(command).close();
    channels.delete(command.channel);
    return {};
  },

  state: (command) => {
    const state = channelOf(command).getChannel().getConnectivityState(command.connect);
    return { state: grpc.connectivityState[state] };
  },

  call: async (command) => {
    const counts = new Counts();
    let left = command.calls;
    const callInTurn = async () => {
      while (left > 0) {
        left -= 1;
        await makeCall(command, counts);
      }
    };
    await Promise.all(Array.from({ length: command.in_flight }, callInTurn));
    return counts.report();
  },

  hold: (command) => {
    channelOf(command);
    holds.set(command.hold, new Hold(command));
    return {};
  },

  stop: async (command) => {
    const hold = holds.get(command.hold);
    holds.delete(command.hold);
    return hold.stop();
  },

  csds: async () => {
    csdsPort ??= startCsds();
    const client = new grpc.Client(`127.0.0.1:${await csdsPort}`, insecure);
    const response = await new Promise((resolve, reject) => {
      client.makeUnaryRequest(CSDS_METHOD, identity, identity, Buffer.alloc(0),
        (error, message) => (error ? reject(error) : resolve(message)));
    });
    client.close();
    return { response: response.toString('base64') };
  },
};

async function answer(command) {
  let result;
  try {
    result = { ok: await commands[command.cmd](command) };
  } catch (error) {
    // Everything that goes wrong is the test's to judge.
    result = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify({ id: command.id, ...result })}\n`);
}

xds.register();
readline.createInterface({ input: process.stdin })
  .on('line', (line) => answer(JSON.parse(line)))
  // Nobody listens any more: what is still under way is not waited for.
  .on('close', () => process.exit(0));
