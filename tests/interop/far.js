// A broker on rhea with queues in memory, to which link routes and auto-links connect.
'use strict';

const container = require('rhea');

const queues = new Map();

function queueOf(address) {
    if (!queues.has(address)) queues.set(address, {waiting: [], takers: []});
    return queues.get(address);
}

function handOut(queue) {
    for (const taker of queue.takers) {
        while (queue.waiting.length && taker.sendable()) {
            const message = queue.waiting.shift();
            taker.send(message).message = message;
        }
    }
}

container.id = 'far';
container.options.autoaccept = false;
container.on('sender_open', ({sender}) => {
    sender.set_source(sender.remote.attach.source);
    queueOf(sender.source.address).takers.push(sender);
});
container.on('receiver_open', ({receiver}) => {
    receiver.set_target(receiver.remote.attach.target);
});
container.on('sendable', ({sender}) => handOut(queueOf(sender.source.address)));
container.on('sender_close', ({sender}) => {
    const queue = queueOf(sender.source.address);
    queue.takers = queue.takers.filter((taker) => taker !== sender);
});
container.on('message', ({receiver, message, delivery}) => {
    const queue = queueOf(receiver.target.address);
    queue.waiting.push(message);
    delivery.accept();
    handOut(queue);
});
container.on('released', ({sender, delivery}) => {
    const queue = queueOf(sender.source.address);
    queue.waiting.unshift(delivery.message);
    handOut(queue);
});
const server = container.listen({port: 0, host: '127.0.0.1', receiver_options: {autoaccept: false}});
server.on('listening', () => process.stdout.write(`listening on 127.0.0.1:${server.address().port}\n`));
