// A client of the interop tests on rhea-promise that waits for the outcome of each message, and receives by credit.
'use strict';

const {Connection} = require('rhea-promise');

async function main() {
    const [url, address, count] = process.argv.slice(2);
    const [host, port] = url.split(':');
    const connection = new Connection({host, port: Number(port), reconnect: false});
    await connection.open();
    const sender = await connection.createAwaitableSender({target: {address}});
    for (let number = 0; number < Number(count); ++number) {
        const delivery = await sender.send({durable: true, subject: String(number), body: 'x'.repeat(number)});
        if (!delivery.settled) throw new Error('it is not settled');
    }
    await sender.close();
    const receiver = await connection.createReceiver({source: {address}, credit_window: 0});
    const all = new Promise((resolve, reject) => {
        let received = 0;
        receiver.on('message', (context) => {
            const {subject, body} = context.message;
            if (subject !== String(received) || body.length !== received) reject(new Error('it is another message'));
            if (++received === Number(count)) resolve(received);
        });
    });
    receiver.addCredit(Number(count));
    process.stdout.write(`sent and received ${await all}\n`);
    await receiver.close();
    await connection.close();
}

main().catch((error) => {
    process.stdout.write(`failed: ${error}\n`);
    process.exitCode = 1;
});
