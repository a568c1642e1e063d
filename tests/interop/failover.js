// A client that knows one member of a cluster, and learns of the others as it is let in:
//     node failover.js HOST:PORT QUEUE COUNT
// It sends, and sends again what was not confirmed, on whichever member its reconnecting finds; the second half it sends only when
// it has been connected again. It says `others N` once, `at N` for each hundred confirmed, and `got N` when it has received that
// many different messages, which are all.
'use strict';

const container = require('rhea');

const [place, queue, count] = [process.argv[2], process.argv[3], Number(process.argv[4])];
const WINDOW = 20;
const first = {host: place.split(':')[0], port: Number(place.split(':')[1])};
let places = [first];
let opened = 0;
let next = 0;
let sender;
let again = [];
const underWay = new Map();
const confirmed = new Set();
const got = new Set();

function go() {
    while (sender && sender.sendable() && underWay.size < WINDOW && (again.length || next < (opened > 1 ? count : count / 2))) {
        const number = again.length ? again.shift() : next++;
        underWay.set(sender.send({message_id: number, durable: true, body: 'x'.repeat(100)}).id, number);
    }
}

container.on('connection_open', ({connection}) => {
    const others = (connection.properties || {})['failover-server-list'] || [];
    if (others.length) places = [first, ...others.map(one => ({host: one['network-host'], port: one.port}))];
    if (!opened++) console.log(`others ${others.length}`);
});
container.on('sendable', context => { sender = context.sender; go(); });
container.on('accepted', ({delivery}) => {
    const number = underWay.get(delivery.id);
    if (number === undefined) return;
    underWay.delete(delivery.id);
    confirmed.add(number);
    if (confirmed.size % 100 === 0) console.log(`at ${confirmed.size}`);
    if (confirmed.size === count) container.connection.open_receiver({source: queue, credit_window: 50});
    go();
});
container.on('disconnected', () => {  // what was under way is to be sent again; links open by themselves
    again = [...underWay.values(), ...again];
    underWay.clear();
});
container.on('message', ({message}) => {
    got.add(message.message_id);
    if (got.size === count) {
        console.log(`got ${got.size}`);
        process.exit(0);
    }
});
container.connection = container.connect({
    connection_details: attempt => places[attempt % places.length],
    non_fatal_errors: ['amqp:connection:forced'],
    initial_reconnect_delay: 50, max_reconnect_delay: 500, idle_time_out: 4000, username: 'anonymous',
});
container.connection.open_sender({target: queue});
container.on('connection_error', () => {});
container.on('connection_close', () => {});
container.on('error', () => {});
