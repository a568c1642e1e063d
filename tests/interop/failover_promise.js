// A client on rhea-promise; test_failover.py describes its commands and output. If the connection breaks, promises of
// messages in flight are settled only after a timeout. Therefore the client does not use rhea's reconnection: it
// connects to the announced members in turn, and sends unconfirmed messages again.
'use strict';

const {Connection} = require('rhea-promise');
const client = require('./failover_client.js');
const {verb, address, count, say, WINDOW, KEPT} = client;

// Runs `work` on a connection; returns false if the connection was lost before the work was done.
async function once(where, work) {
    const connection = new Connection({...where, reconnect: false, operationTimeoutInSeconds: 10, idle_time_out: 20000, username: 'anonymous'});
    let done = false;
    const lost = new Promise(resolve => {  // after a close by the broker, `disconnected` is not emitted
        for (const event of ['disconnected', 'connection_close']) connection.once(event, () => done || resolve(false));
    });
    connection.on('connection_error', () => {});
    const attempt = async () => {
        await connection.open();
        client.isOpen(connection);
        await work(connection);
        done = true;
        await connection.close();
        return true;
    };
    return await Promise.race([lost, attempt().catch(() => lost)]);
}

function sending() {
    let left = Array.from({length: count}, (_, number) => number);
    let confirmed = 0;
    return async connection => {
        const sender = await connection.createAwaitableSender({target: {address}});
        const underWay = new Set();
        const sendable = () => new Promise(resolve => sender.once('sendable', resolve));
        while (left.length) {
            while (!sender.sendable()) await sendable();
            const batch = left.slice(0, Math.min(WINDOW, sender.credit, (client.opened > 1 ? count : count / 2) - confirmed));
            if (!batch.length) await new Promise(() => {});  // until the connection ends
            await Promise.all(batch.map(async number => {
                await sender.send({message_id: number, durable: true, body: 'x'.repeat(100)});
                left = left.filter(other => other !== number);
                if (++confirmed % 100 === 0) say(`at ${confirmed}`);
            }));
        }
    };
}

function receiving() {
    const got = new Set();
    return async connection => {
        const receiver = await connection.createReceiver({source: {address}, credit_window: 0, autoaccept: false});  // no credit until the handler is set
        const kept = [];
        const all = new Promise(resolve => receiver.on('message', ({message, delivery}) => {
            const firstTime = !message.delivery_count && message.first_acquirer;
            say(`got ${message.message_id} ${firstTime ? 'first' : 'again'}`);
            receiver.addCredit(1);
            got.add(message.message_id);
            kept.push(delivery);
            while (kept.length > (got.size === count ? 0 : KEPT)) kept.shift().accept();
            if (got.size === count) resolve();
        }));
        receiver.addCredit(WINDOW);
        await all;
    };
}

async function main() {
    const work = {send: sending, receive: receiving}[verb]();
    for (let attempt = 0; !await once(client.place(attempt), work); ++attempt) {
        await new Promise(resolve => setTimeout(resolve, 50));
    }
}

main().then(() => process.exit(0), error => {
    say(`failed: ${error}`);
    process.exit(1);
});
