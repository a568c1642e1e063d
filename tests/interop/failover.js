// A client on rhea that uses the library's reconnection; test_failover.py describes its commands and output. It
// reconnects to the other members that the broker announces in its open.
'use strict';

const container = require('rhea');
const client = require('./failover_client.js');
const {verb, address, count, say, WINDOW, KEPT} = client;

container.on('connection_open', ({connection}) => client.isOpen(connection));
const connection = container.connect({
    connection_details: client.place,
    non_fatal_errors: ['amqp:connection:forced'],
    initial_reconnect_delay: 50, max_reconnect_delay: 500, idle_time_out: 20000, username: 'anonymous',
});
container.on('connection_error', () => {});
container.on('connection_close', () => {});
container.on('error', () => {});

function send() {
    const underWay = new Map();
    let sender;
    let again = [];
    let next = 0;
    let confirmed = 0;
    function go() {
        while (sender && sender.sendable() && underWay.size < WINDOW && (again.length || next < (client.opened > 1 ? count : count / 2))) {
            const number = again.length ? again.shift() : next++;
            underWay.set(sender.send({message_id: number, durable: true, body: 'x'.repeat(100)}).id, number);
        }
    }
    container.on('sendable', context => { sender = context.sender; go(); });
    container.on('accepted', ({delivery}) => {
        if (!underWay.delete(delivery.id)) return;
        if (++confirmed % 100 === 0) say(`at ${confirmed}`);
        if (confirmed === count) connection.close();
        go();
    });
    container.on('disconnected', () => {  // messages in flight are sent again; rhea opens the links
        again = [...underWay.values(), ...again];
        underWay.clear();
    });
    connection.open_sender({target: address});
}

function receive() {
    const got = new Set();
    const numbers = new Map();
    let kept = [];
    container.on('message', ({message, delivery}) => {
        const firstTime = !message.delivery_count && message.first_acquirer;
        say(`got ${message.message_id} ${firstTime ? 'first' : 'again'}`);
        got.add(message.message_id);
        numbers.set(delivery, message.message_id);
        kept.push(delivery);
        while (kept.length > (got.size === count ? 0 : KEPT)) kept.shift().accept();
    });
    container.on('settled', ({delivery}) => {  // the broker has confirmed the acceptance
        say(`settled ${numbers.get(delivery)}`);
        numbers.delete(delivery);
        if (got.size === count && !numbers.size) connection.close();
    });
    container.on('disconnected', () => {
        kept = [];
        numbers.clear();
    });
    connection.open_receiver({source: address, credit_window: WINDOW, autoaccept: false, rcv_settle_mode: 1});
}

({send, receive})[verb]();
