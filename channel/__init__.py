"""The words a terminal and a driver exchange (AMQ RFC005). Router and broker meet only here."""
