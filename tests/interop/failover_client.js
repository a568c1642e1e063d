// Arguments, addresses and output of the failover clients on Node.js, which test_failover.py describes.
'use strict';

const [verb, address, count, place] = [process.argv[2], process.argv[3], Number(process.argv[4]), process.argv[5]];
const first = {host: place.split(':')[0], port: Number(place.split(':')[1])};
let places = [first];

function say(what) {
    process.stdout.write(what + '\n');
}

module.exports = {
    verb, address, count, say,
    WINDOW: 20,  // messages in flight
    KEPT: 10,  // received messages that are kept unsettled
    opened: 0,  // number of connections opened so far
    place: attempt => places[attempt % places.length],
    // Process the open of a connection, in which the broker announces the other members.
    isOpen(connection) {
        const others = (connection.properties || {})['failover-server-list'] || [];
        if (others.length) places = [first, ...others.map(one => ({host: one['network-host'], port: one.port}))];
        ++this.opened;
        say(`open ${others.length}`);
    },
};
